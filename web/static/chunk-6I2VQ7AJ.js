async function*v(s){let t=s.getReader(),e=new TextDecoder,r="";for(;;){let{done:n,value:o}=await t.read();if(n)return;let i=(r+e.decode(o,{stream:!0})).split(`

`);r=i.pop()??"";for(let c of i){let a=d(c);(a.id!==""||a.name!=="")&&(yield a)}}}function d(s){let t={id:"",name:"",data:""};for(let e of s.split(`
`)){let r=e.indexOf(":"),n=e.slice(r+1).trimStart();e.startsWith("id:")?t.id=n:e.startsWith("event:")?t.name=n:e.startsWith("data:")&&(t.data+=n)}return t}export{v as a};
